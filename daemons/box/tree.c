/* What a program sees of the host: a small root directory, built once per slot.
 *
 * One tmpfs is the root. /usr and what belongs to it are bound into it, read
 * only; the few files of /etc that compilers and runtimes need are copied, so
 * that a run's mount namespace has few mounts to copy. /proc, /box, /tmp and
 * /dev/shm are only places here: each run mounts its own. Then the tmpfs is
 * made read-only and the host's root is let go. */
#include "box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* <sys/mount.h> and <linux/mount.h> cannot both be included with older libcs. */
int mount(const char *, const char *, const char *, unsigned long, const void *);
int umount2(const char *, int);
enum { DETACH = 2 /* MNT_DETACH */ };

#define STAGE "/tmp" /* covered by the new root in our namespace only */

/* Bound where they exist; symbolic links (a merged /usr) are copied. */
static const char *const parts[] = {"/usr",   "/bin",    "/sbin",        "/lib", "/lib32",
                                    "/lib64", "/libx32", "/var/lib/ghc", NULL};

/* Copied where they exist and everybody may read them. */
static const char *const etc[] = {
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives",  "localtime", "timezone",
    "python3",     "perl",       "php",          "fpc.cfg",       "java",      "lua",
    "mono",        "ghc",        "R",            "octave",        NULL};

/* Debian adds versions to these. */
static const char *const etc_prefixes[] = {"java-", "python3.", "fpc-", NULL};

static const struct {
    const char *name;
    unsigned minor;
} devices[] = {{"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}};

static int make_directories(const char *path, mode_t mode)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *at = part + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return -1;
        *at = '/';
    }
    return mkdir(part, mode) < 0 && errno != EEXIST ? -1 : 0;
}

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0)
        return -1;
    ssize_t done = write(fd, text, strlen(text));
    close(fd);
    return done == (ssize_t)strlen(text) ? 0 : -1;
}

static int bind_read_only(const char *from, const char *to)
{
    struct mount_attr attributes = {
        .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return -1;
    if (syscall(SYS_mount_setattr, -1, to, AT_RECURSIVE, &attributes, sizeof attributes) == 0)
        return 0;
    /* Before 5.12, and in containers that refuse it: only the top mount can be changed, so what is
     * mounted below it, which would stay as it is, is not shown. */
    if (umount2(to, DETACH) < 0 || mount(from, to, NULL, MS_BIND, NULL) < 0)
        return -1;
    return mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
}

static int add_part(const char *path, struct fault *fault)
{
    char to[PATH_MAX], target[PATH_MAX];
    struct stat info;

    if (lstat(path, &info) < 0)
        return errno == ENOENT ? 0 : fault_errno(fault, "cannot look at %s", path);
    snprintf(to, sizeof to, "%s%s", STAGE, path);
    if (S_ISLNK(info.st_mode)) {
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0)
            return fault_errno(fault, "cannot read the link %s", path);
        target[length] = 0;
        if (symlink(target, to) < 0 && errno != EEXIST)
            return fault_errno(fault, "cannot make the link %s", path);
        return 0;
    }
    if (!S_ISDIR(info.st_mode))
        return fault_say(fault, "%s is not a directory", path);
    if (make_directories(to, 0755) < 0 || bind_read_only(path, to) < 0)
        return fault_errno(fault, "cannot show %s to programs", path);
    return 0;
}

/* Best effort: a file that everybody may read, a link, or a directory of them. */
static void copy_entry(const char *from, const char *to, int depth)
{
    enum { MOST_BYTES = 4 << 20, MOST_DEPTH = 6 };
    struct stat info;
    char target[PATH_MAX], inner_from[PATH_MAX], inner_to[PATH_MAX];

    if (depth > MOST_DEPTH || lstat(from, &info) < 0)
        return;
    if (S_ISLNK(info.st_mode)) {
        ssize_t length = readlink(from, target, sizeof target - 1);
        if (length > 0) {
            target[length] = 0;
            if (symlink(target, to) < 0)
                return;
        }
    } else if (S_ISREG(info.st_mode) && info.st_mode & S_IROTH && info.st_size <= MOST_BYTES) {
        int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
        char buffer[65536];
        ssize_t got;
        while (in >= 0 && out >= 0 && (got = read(in, buffer, sizeof buffer)) > 0)
            if (write(out, buffer, (size_t)got) != got)
                break;
        if (in >= 0)
            close(in);
        if (out >= 0)
            close(out);
    } else if (S_ISDIR(info.st_mode) && info.st_mode & S_IROTH) {
        DIR *list = opendir(from);
        struct dirent *entry;
        mkdir(to, 0755);
        while (list && (entry = readdir(list))) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            if (snprintf(inner_from, sizeof inner_from, "%s/%s", from, entry->d_name) < PATH_MAX &&
                snprintf(inner_to, sizeof inner_to, "%s/%s", to, entry->d_name) < PATH_MAX)
                copy_entry(inner_from, inner_to, depth + 1);
        }
        if (list)
            closedir(list);
    }
}

static int setup_root(struct fault *fault)
{
    static const char *const places[] = {TREE_BOX,   "/tmp",    "/proc",    "/dev",    "/dev/shm",
                                         "/etc",     TREE_LOWER, TREE_DATA, TREE_LAYER, TREE_RUN,
                                         TREE_NEXT};
    char path[PATH_MAX];

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fault_errno(fault, "cannot make the mounts private");
    if (mount("oj-box", STAGE, "tmpfs", MS_NOSUID | MS_NOATIME, "mode=755,size=16m") < 0)
        return fault_errno(fault, "cannot mount a tmpfs");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s", STAGE, places[i]);
        if (make_directories(path, 0755) < 0)
            return fault_errno(fault, "cannot make %s", places[i]);
    }
    /* The layers are reached through /box only. */
    if (chmod(STAGE TREE_PRIVATE, 0700) < 0 ||
        mount(STAGE TREE_SHARED, STAGE TREE_SHARED, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, STAGE TREE_SHARED, NULL, MS_SHARED, NULL) < 0)
        return fault_errno(fault, "cannot set up " TREE_SHARED);
    return 0;
}

static int setup_parts(char *const extra_parts[], struct fault *fault)
{
    for (size_t i = 0; parts[i]; i++)
        if (add_part(parts[i], fault) < 0)
            return -1;
    for (size_t i = 0; extra_parts && extra_parts[i]; i++)
        if (add_part(extra_parts[i], fault) < 0)
            return -1;
    return 0;
}

static int setup_etc(struct fault *fault)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct dirent *entry;

    for (size_t i = 0; etc[i]; i++) {
        snprintf(from, sizeof from, "/etc/%s", etc[i]);
        snprintf(to, sizeof to, STAGE "/etc/%s", etc[i]);
        copy_entry(from, to, 0);
    }
    DIR *list = opendir("/etc");
    while (list && (entry = readdir(list)))
        for (size_t i = 0; etc_prefixes[i]; i++)
            if (strncmp(entry->d_name, etc_prefixes[i], strlen(etc_prefixes[i])) == 0) {
                snprintf(from, sizeof from, "/etc/%s", entry->d_name);
                snprintf(to, sizeof to, STAGE "/etc/%s", entry->d_name);
                copy_entry(from, to, 0);
            }
    if (list)
        closedir(list);
    if (write_file(STAGE "/etc/passwd", "root:x:0:0:root:/:/usr/sbin/nologin\n"
                                        "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n") < 0 ||
        write_file(STAGE "/etc/group", "root:x:0:\nnogroup:x:65534:\n") < 0 ||
        write_file(STAGE "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n") < 0 ||
        write_file(STAGE "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n") < 0)
        return fault_errno(fault, "cannot write /etc");
    return 0;
}

static int setup_devices(struct fault *fault)
{
    char path[PATH_MAX], host[64];

    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        snprintf(path, sizeof path, STAGE "/dev/%s", devices[i].name);
        int fd = -1;
        if (mknod(path, S_IFCHR | 0666, makedev(1, devices[i].minor)) == 0)
            fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            close(fd);
            continue;
        }
        /* A container that may not make nodes has them already. */
        unlink(path);
        snprintf(host, sizeof host, "/dev/%s", devices[i].name);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0)
            close(fd);
        if (fd < 0 || mount(host, path, NULL, MS_BIND, NULL) < 0)
            return fault_errno(fault, "cannot provide /dev/%s", devices[i].name);
    }
    if (symlink("/proc/self/fd", STAGE "/dev/fd") < 0 ||
        symlink("/proc/self/fd/0", STAGE "/dev/stdin") < 0 ||
        symlink("/proc/self/fd/1", STAGE "/dev/stdout") < 0 ||
        symlink("/proc/self/fd/2", STAGE "/dev/stderr") < 0)
        return fault_errno(fault, "cannot link /dev/fd");
    return 0;
}

static int setup_pivot(struct fault *fault)
{
    if (mount(NULL, STAGE, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOATIME,
              "mode=755,size=16m") < 0)
        return fault_errno(fault, "cannot make the tree read-only");
    if (chdir(STAGE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", DETACH) < 0 ||
        chdir("/") < 0)
        return fault_errno(fault, "cannot enter the tree");
    return 0;
}

static int empty_mounts(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", STAGE, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "mode=555,size=4k,nr_inodes=1") < 0 ||
        chdir(STAGE) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", DETACH) < 0)
        return errno;
    return 0;
}

/* A child makes it, so that our own root stays what it is. */
int tree_make_empty(struct fault *fault)
{
    char path[64];
    int ready[2], error = EIO, found = -1;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return fault_errno(fault, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        error = empty_mounts();
        if (write(ready[1], &error, sizeof error) == sizeof error)
            pause();
        _exit(1);
    }
    close(ready[1]);
    if (pid > 0 && read(ready[0], &error, sizeof error) == sizeof error && error == 0) {
        snprintf(path, sizeof path, "/proc/%ld/ns/mnt", (long)pid);
        found = open(path, O_RDONLY | O_CLOEXEC);
        error = errno;
    }
    close(ready[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    errno = error;
    return found >= 0 ? found : fault_errno(fault, "cannot make an empty mount namespace");
}

int tree_enter(char *const extra_parts[], struct fault *fault)
{
    if (unshare(CLONE_NEWNS) < 0)
        return fault_errno(fault, "cannot make a mount namespace");
    if (setup_root(fault) < 0 || setup_parts(extra_parts, fault) < 0 || setup_etc(fault) < 0 ||
        setup_devices(fault) < 0 || setup_pivot(fault) < 0)
        return -1;
    return 0;
}
