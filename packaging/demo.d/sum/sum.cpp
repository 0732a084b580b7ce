// Reads n and then n numbers, and prints their sum.
#include <iostream>

int main() {
    long long n = 0, sum = 0;
    std::cin >> n;
    for (long long value; n > 0 && std::cin >> value; --n)
        sum += value;
    std::cout << sum << '\n';
}
