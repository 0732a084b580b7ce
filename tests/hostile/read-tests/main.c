#include "hostile.h"
int main(void)
{
    const char *known[] = {"@SECRET_FILE@", "/box/../@SECRET_FILE@", "/proc/self/root/@SECRET_FILE@",
                           "/proc/self/cwd/../../@SECRET_FILE@", "@STATE@/blobs", "@STATE@/small",
                           "/box/.data", "/box/../box.data", "/etc/shadow", "/etc/gshadow",
                           "/etc/sudoers", "/etc/ssh/ssh_host_rsa_key", "/etc/machine-id",
                           "/etc/hostname", "/root/.bashrc", "/var/log", "/var/cache"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (access(known[i], F_OK) == 0)
            ESCAPED("%s exists", known[i]);
    const char *tops[] = {"/box", "/tmp", "/dev/shm", "/etc", "/.oj", "/proc/self"};
    long count = 0;
    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++)
        count += walk(tops[i], 8, search_file);
    if (count < 5)
        return 1; /* it cannot have looked */
    /* The root itself: nothing but what is meant to be there. */
    struct dirent *entry;
    DIR *list = opendir("/");
    while (list && (entry = readdir(list)))
        if (!strstr(" . .. .oj bin box dev etc lib lib32 lib64 libx32 proc sbin tmp usr var ",
                    entry->d_name))
            ESCAPED("there is /%s", entry->d_name);
    HELD();
    return 0;
}
