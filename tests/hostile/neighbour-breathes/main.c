/* In one slot kernel memory within the limit is taken and given back, again and again; in the other an
 * honest program uses nearly all that it may. Nothing may come of it for that. */
#include "hostile.h"

static void breathe(double until)
{
    static char entries[1 << 16];
    char name[160];
    int fds[200];
    memset(name, 'n', sizeof name);
    for (int i = 0; i < 2000; i++) {
        snprintf(name + 140, 12, "%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    close(open("one", O_CREAT | O_WRONLY, 0600));
    while (now_s() < until) {
        int count = 0;
        for (; count < 105 && now_s() < until; count++) {
            fds[count] = open("/box", O_RDONLY | O_DIRECTORY);
            if (fds[count] < 0 || syscall(SYS_getdents64, fds[count], entries, sizeof entries) <= 0)
                break;
            rename(count % 2 ? "two" : "one", count % 2 ? "one" : "two");
        }
        usleep(30000);
        while (count > 0)
            close(fds[--count]);
        usleep(30000);
    }
}

static void be_honest(double until)
{
    size_t size = 56 << 20;
    unsigned char *own = malloc(size);
    for (unsigned i = 1; now_s() < until; i++)
        {
        memset(own, (int)i, size);
        __asm__ volatile("" : : "r"(own) : "memory");
    }
}

int main(void)
{
    double until = now_s() + 0.8;
    if (getuid() % 2)
        breathe(until + 0.4);
    else
        be_honest(until);
    HELD();
    return 0;
}
