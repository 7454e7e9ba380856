"""What is GASLoC's own: local steps with gradients, parameters that travel, and the outer step that mixes them."""
