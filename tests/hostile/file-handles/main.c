#include "hostile.h"
#include <sys/fanotify.h>
int main(void)
{
    union {
        struct file_handle handle;
        char space[sizeof(struct file_handle) + 128];
    } file = {.handle = {.handle_bytes = 128}};
    int mount_id;
    MUST_FAIL(name_to_handle_at(AT_FDCWD, "/usr", &file.handle, &mount_id, 0));
    int usr = open("/usr", O_RDONLY | O_DIRECTORY);
    for (int type = 1; type < 4; type++) {
        /* Inode 2 is the root of an ext file system. */
        file.handle.handle_bytes = 8;
        file.handle.handle_type = type;
        memcpy(file.handle.f_handle, "\2\0\0\0\0\0\0\0", 8);
        MUST_FAIL(open_by_handle_at(usr, &file.handle, O_RDONLY));
    }
    MUST_FAIL(fanotify_init(FAN_CLASS_NOTIF, O_RDONLY));
    HELD();
    return 0;
}
