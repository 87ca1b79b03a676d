"""The typed graph network: normalized graphs -> log(latency / base) and its spread."""
