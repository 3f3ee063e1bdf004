"""The decision service: decide over HTTP, log the propensity, remember the outcome."""
