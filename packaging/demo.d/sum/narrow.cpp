// The same with a mistake: the sum of large numbers does not fit.
#include <iostream>

int main() {
    int n = 0;
    unsigned sum = 0;
    std::cin >> n;
    for (long long value; n > 0 && std::cin >> value; --n)
        sum += static_cast<unsigned>(value);
    std::cout << static_cast<int>(sum) << '\n';
}
