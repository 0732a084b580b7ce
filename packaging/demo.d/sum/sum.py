# Reads n and then n numbers, and prints their sum.
import sys

n, *values = map(int, sys.stdin.read().split())
print(sum(values[:n]))
