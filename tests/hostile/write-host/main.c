#include "hostile.h"
int main(void)
{
    const char *places[] = {"/", "/usr", "/usr/bin", "/usr/lib", "/etc", "/dev", "/proc", "/bin",
                            "/.oj", "/.oj/run/upper", "/.oj/shared/tree", "/var",
                            "/usr/local/bin", "@STATE@"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/oj-hostile", places[i]);
        MUST_FAIL(open(path, O_CREAT | O_WRONLY, 0600));
        MUST_FAIL(open(places[i], O_TMPFILE | O_WRONLY, 0600));
        MUST_FAIL(mkdir(path, 0700));
        MUST_FAIL(symlink("/etc/shadow", path));
        MUST_FAIL(mkfifo(path, 0600));
        MUST_FAIL(chmod(places[i], 0777));
        MUST_FAIL(rename("/box/hostile.h", path));
        MUST_FAIL(utimensat(AT_FDCWD, places[i], NULL, 0));
    }
    const char *files[] = {"/usr/bin/env", "/etc/passwd", "/bin/sh", "@CANARY@", "@SECRET_FILE@"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        MUST_FAIL(open(files[i], O_WRONLY));
        MUST_FAIL(open(files[i], O_RDWR | O_TRUNC));
        MUST_FAIL(truncate(files[i], 0));
        MUST_FAIL(unlink(files[i]));
        MUST_FAIL(chmod(files[i], 0777));
        MUST_FAIL(chown(files[i], getuid(), getgid()));
        MUST_FAIL(link(files[i], "/box/link"));
    }
    HELD();
    return 0;
}
