"""What the algorithms share: least-squares problems, sweeps, Levenberg-Marquardt, one loop."""
