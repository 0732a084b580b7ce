/* One default list of a directory is inherited by all that is made in it, without another call. */
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

int main(void)
{
    double end = now_s() + 0.7;
    char path[64];
    for (unsigned i = 0; i < ENTRIES; i++) {
        list.entries[i].permissions = 6;
        list.entries[i].tag = i == 0 ? 1 : i == ENTRIES - 3 ? 4 : i == ENTRIES - 2 ? 16 : 2;
        list.entries[i].id = i;
    }
    list.entries[ENTRIES - 1].tag = 32;
    mkdir("/tmp/d", 0700);
    mkdir("/box/d", 0700);
    setxattr("/tmp/d", "system.posix_acl_default", &list, sizeof list, 0);
    setxattr("/box/d", "system.posix_acl_default", &list, sizeof list, 0);
    for (int i = 0; i < 2000 && now_s() < end; i++) {
        snprintf(path, sizeof path, "%s/d/%d", i % 2 ? "/box" : "/tmp", i);
        mkdir(path, 0700); /* takes it twice: as its own and to hand it on */
    }
    linger();
    HELD();
    return 0;
}
