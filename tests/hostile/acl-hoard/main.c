/* An access control list of 64 KB for each of many files. The kernel keeps it with the inode, on
 * nobody's account, and on a tmpfs as well as on an overlay: 262 MB a second, before it was refused. */
#include "hostile.h"
#include <sys/xattr.h>

enum { ENTRIES = 8000, FILES = 3000 };
static struct {
    uint32_t version;
    struct {
        uint16_t tag, permissions;
        uint32_t id;
    } entries[ENTRIES];
} list = {.version = 2};

static void fill_in(void)
{
    for (unsigned i = 0; i < ENTRIES; i++) {
        list.entries[i].permissions = 6;
        list.entries[i].tag = i == 0 ? 1 : i == ENTRIES - 3 ? 4 : i == ENTRIES - 2 ? 16 : 2;
        list.entries[i].id = i;
    }
    list.entries[ENTRIES - 1].tag = 32;
}

static int set(const char *path, int fd, int way)
{
    static const char name[] = "system.posix_acl_access";
    struct {
        uint64_t value;
        uint32_t size, flags;
    } arguments = {(uintptr_t)&list, sizeof list, 0};
    switch (way % 4) {
    case 0:
        return setxattr(path, name, &list, sizeof list, 0);
    case 1:
        return lsetxattr(path, name, &list, sizeof list, 0);
    case 2:
        return fsetxattr(fd, name, &list, sizeof list, 0);
    default: /* setxattrat */
        return (int)syscall(463, AT_FDCWD, path, 0, name, &arguments, sizeof arguments);
    }
}

int main(void)
{
    static const char *const places[] = {"/tmp", "/box", "/dev/shm"};
    double end = now_s() + 0.7;
    fill_in();
    for (int i = 0; i < FILES && now_s() < end; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/a%d", places[i % 3], i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        set(path, fd, i / 3);
        close(fd);
    }
    linger();
    HELD();
    return 0;
}
