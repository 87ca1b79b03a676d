"""Small real torch.distributed training programs, one module each, parameterized by a frozen dataclass."""
