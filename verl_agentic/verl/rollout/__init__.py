"""Episodes as agent loops of verl: `verl.experimental.agent_loop`."""
