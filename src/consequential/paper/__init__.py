"""The paper: its experiments run, stored, drawn and judged."""
