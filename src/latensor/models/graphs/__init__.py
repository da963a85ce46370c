"""Communities of networks: block models with mixed memberships."""
