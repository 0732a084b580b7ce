#include <cstdio>
#include <cstring>
#include <new>
#include <vector>
int main()
{
    std::vector<char *> blocks;
    try {
        for (;;) {
            blocks.push_back(new char[1 << 20]);
            std::memset(blocks.back(), 1, 1 << 20);
        }
    } catch (const std::bad_alloc &) {
        std::puts("held");
    }
}
