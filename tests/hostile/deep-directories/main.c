#include "hostile.h"
static int dig(const char *place, int most)
{
    char name[200];
    int depth = 0;
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = 0;
    if (chdir(place) < 0)
        return 0;
    while (depth < most && mkdir(name, 0700) == 0 && chdir(name) == 0)
        depth++;
    return depth;
}
int main(void)
{
    dig("/box", 1500);
    if (dig("/tmp", 100000) > 50000)
        ESCAPED("too deep");
    HELD();
    return 0;
}
