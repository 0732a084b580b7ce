/* Arguments are copied into pages of the new process before there is one. */
#include "hostile.h"

static char *words[64];

static void work(int number)
{
    (void)number;
    if (vfork() == 0) {
        execv("/usr/bin/sleep", words);
        execv("/bin/sleep", words);
        _exit(1);
    }
}

int main(void)
{
    words[0] = "sleep";
    words[1] = "5";
    for (int i = 2; i < 60; i++) {
        words[i] = malloc(120000);
        memset(words[i], '0', 119999);
        words[i][119999] = 0;
    }
    in_children(12, work);
    HELD();
    return 0;
}
