"""Networks with hidden causes or units: noisy-or, two layers."""
