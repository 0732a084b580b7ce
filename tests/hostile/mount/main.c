#include "hostile.h"
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
/* Newer than the headers; the same everywhere. */
enum { NR_LISTMOUNT = 458, NR_OPEN_TREE_ATTR = 467 };
int main(void)
{
    MUST_FAIL(mount("tmpfs", "/tmp", "tmpfs", 0, ""));
    MUST_FAIL(mount("proc", "/tmp", "proc", 0, ""));
    MUST_FAIL(mount("/usr", "/tmp", NULL, MS_BIND, NULL));
    MUST_FAIL(mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
    MUST_FAIL(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
    MUST_FAIL(mount("cgroup", "/tmp", "cgroup2", 0, ""));
    MUST_FAIL(mount("o", "/tmp", "overlay", 0, "lowerdir=/,upperdir=/tmp,workdir=/box"));
    MUST_FAIL(umount2("/box", MNT_DETACH));
    MUST_FAIL(umount2("/proc", MNT_DETACH));
    MUST_FAIL(umount2("/tmp", 0));
    MUST_FAIL(syscall(SYS_fsopen, "tmpfs", 0));
    MUST_FAIL(syscall(SYS_fspick, AT_FDCWD, "/", 0));
    MUST_FAIL(syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    MUST_FAIL(syscall(SYS_open_tree, AT_FDCWD, "/", 0));
    MUST_FAIL(syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/box", 0));
    char attributes[32] = {0};
    MUST_FAIL(syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, attributes, sizeof attributes));
    MUST_FAIL(syscall(NR_OPEN_TREE_ATTR, AT_FDCWD, "/", 0, NULL, 0));
    struct {
        uint32_t size, spare;
        uint64_t mount, after;
    } all = {24, 0, UINT64_MAX, 0};
    uint64_t found[8];
    MUST_FAIL(syscall(NR_LISTMOUNT, &all, found, 8, 0));
    HELD();
    return 0;
}
