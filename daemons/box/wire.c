/* Messages with descriptors over SOCK_SEQPACKET sockets: whole or not at all. */
#include "box.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int receive_message_of(int socket, char *bytes, size_t *length, int *fds, int *count, int flags,
                       uid_t *sender)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec data = {.iov_base = bytes, .iov_len = *length};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    int most = *count;

    ssize_t got;
    do
        got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    *count = 0;
    if (got <= 0)
        return got == 0 || errno == ECONNRESET ? 0 : -1;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET)
            continue;
        if (sender && part->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(part), sizeof who);
            *sender = who.uid;
        }
        if (part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t have = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < have; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (*count < most)
                fds[(*count)++] = fd;
            else
                close(fd);
        }
    }
    /* Cut messages are seen by the parser as too short or too long. */
    *length = message.msg_flags & MSG_TRUNC ? 0 : (size_t)got;
    return 1;
}

int receive_message(int socket, char *bytes, size_t *length, int *fds, int *count, int flags)
{
    return receive_message_of(socket, bytes, length, fds, count, flags, NULL);
}

int send_message(int socket, const void *bytes, size_t length, const int *fds, int count)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(SLOTS_MAX * sizeof(int))];
    } control = {.space = {0}};
    struct iovec data = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

    if (count > 0) {
        size_t size = (size_t)count * sizeof(int);
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(size);
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(part), fds, size);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)length ? 0 : -1;
}
