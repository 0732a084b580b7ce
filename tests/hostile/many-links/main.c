#include "hostile.h"
int main(void)
{
    char path[32];
    int made = 0;
    close(open("/tmp/one", O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 100000; i++) {
        snprintf(path, sizeof path, "/tmp/%d", i);
        made += link("/tmp/one", path) == 0;
    }
    if (made > 50000)
        ESCAPED("%d links", made);
    HELD();
    return 0;
}
