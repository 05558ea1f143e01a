"""Values: what the driver knows and says, frozen, standard library only."""
