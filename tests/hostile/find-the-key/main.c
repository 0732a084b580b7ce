#include "hostile.h"
static long tried;
static int opens(uint64_t key)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    tried++;
    return syscall(SYS_sched_setaffinity, 0, sizeof all, &all, 0, 0, key) != -1;
}
int main(void)
{
    char line[1024], name[256];
    uint64_t from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        return 1;
    while (fgets(line, sizeof line, maps)) {
        char mode;
        name[0] = 0;
        if (sscanf(line, "%lx-%lx %c%*s %*s %*s %*s %255s", &from, &to, &mode, name) < 3 ||
            mode != 'r' || strncmp(name, "[vv", 3) == 0)
            continue;
        for (const uint64_t *word = (const uint64_t *)from; word < (const uint64_t *)to; word++)
            if (opens(*word))
                ESCAPED("the key is in %s", name);
    }
    /* Nor is it anything that is easily guessed. */
    for (uint64_t i = 0; i < 64; i++)
        if (opens(1ULL << i) || opens((1ULL << i) - 1) || opens(~(1ULL << i)))
            ESCAPED("the key is close to 2 to the power of %d", (int)i);
    if (tried < 10000)
        return 1;
    HELD();
    return 0;
}
