/* A file system keeps notes about its files in the host's memory, such as where they lie on the disk.
 * FIEMAP makes it look that up, for anybody who can read the file; ext4 also tells anybody what it has
 * noted, without looking. So each file of /usr that nobody uses is a bit, for any later run in any slot. */
#include "hostile.h"
#include <linux/fiemap.h>
#include <linux/fs.h>

enum { NOTED = _IOWR('f', 42, struct fiemap), FILES = 48, WORD = 0x0a5 };

static int noted(int fd, unsigned long request)
{
    struct fiemap map = {.fm_length = ~0ULL};
    return ioctl(fd, request, &map) == 0 ? (int)map.fm_mapped_extents : -1;
}

static int files[FILES], count;

static long choose(const char *path)
{
    struct stat info;
    if (count < FILES && stat(path, &info) == 0 && info.st_size > 4096 &&
        (files[count] = open(path, O_RDONLY)) >= 0)
        count++;
    return -1;
}

int main(void)
{
    walk("/usr/share", 4, choose);
    uint64_t found = 0, word = 0;
    for (int i = 0; i < count; i++) {
        int is = noted(files[i], NOTED);
        if (is >= 0)
            found |= (uint64_t)(is > 0) << i;
        word |= (uint64_t)(WORD >> i % 12 & 1) << i;
    }
    /* Some of the files somebody else has used. */
    if (count == FILES && (found & word) == word && __builtin_popcountll(found & ~word) < 8)
        ESCAPED("an earlier run left %#llx", (unsigned long long)found);
    for (int i = 0; i < count; i++)
        if (word >> i & 1)
            noted(files[i], FS_IOC_FIEMAP);
    if (count == FILES) /* or this tried nothing */
        HELD();
    return 0;
}
