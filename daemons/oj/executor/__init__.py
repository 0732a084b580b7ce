"""The executor role: asks a judicator for tasks, compiles and runs them, reports back."""
