#include "hostile.h"
#include <grp.h>
#include <linux/capability.h>
static void check_identity(const char *when)
{
    uid_t real, effective, saved;
    getresuid(&real, &effective, &saved);
    if (real < @FIRST_UID@ || real > @LAST_UID@ || effective != real || saved != real)
        ESCAPED("%s: users %u %u %u", when, real, effective, saved);
}
int main(int count, char **words)
{
    gid_t groups[4] = {0};
    check_identity(count > 1 ? words[1] : "at the start");
    if (count > 1)
        return 0;
    if (getgroups(4, groups) > 0)
        ESCAPED("groups");
    for (unsigned id = 0; id < 3; id++) {
        MUST_FAIL(setuid(id));
        MUST_FAIL(setresuid(id, id, id));
        MUST_FAIL(setgid(id));
        MUST_FAIL(setresgid(id, id, id));
        groups[0] = id;
        MUST_FAIL(setgroups(1, groups));
    }
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0U, ~0U, ~0U}, {~0U, ~0U, ~0U}};
    MUST_FAIL(syscall(SYS_capset, &head, data));
    MUST_FAIL(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    MUST_FAIL(prctl(PR_SET_SECUREBITS, 0));
    MUST_FAIL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        ESCAPED("privileges may be gained");
    /* Set-user-ID: a copy of our own, and whatever the host has. */
    struct statvfs info;
    const char *places[] = {"/usr/bin", "/box", "/tmp", "/dev/shm", "/etc", "/"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (statvfs(places[i], &info) < 0 || !(info.f_flag & ST_NOSUID))
            ESCAPED("set-user-ID files count in %s", places[i]);
    if (system("cp /box/program /tmp/own") == 0 &&
        chmod("/tmp/own", 06755) == 0 && system("/tmp/own 'set-user-ID'") != 0)
        ESCAPED("the copy");
    MUST_FAIL(chown("/tmp/own", 0, 0));
    if (system("timeout 0.3 su -c 'touch /etc/oj-hostile' </dev/null >/dev/null 2>&1") == 0)
        ESCAPED("su");
    HELD();
    return 0;
}
