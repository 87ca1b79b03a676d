"""Where to put embedding tables: placements ranked by the predicted step."""
