/* What slot.c and run.c share: the state of a slot. */
#ifndef RUN_H
#define RUN_H

#include "box.h"

/* A client's directory that is mounted in our tree. The mount holds the inode,
 * so equal numbers mean the same directory. */
struct attached {
    const char *place;
    bool mounted;
    dev_t device;
    ino_t inode;
};

/* An init with namespaces and mounts of its own that waits to be told what to run. */
struct waiting_init {
    pid_t pid; /* 0: none */
    int socket;
    ino_t peer; /* its end of it */
};

struct slot {
    const struct slot_settings *settings;
    int own_ns;
    int net;  /* the directory /proc/PID/net, which shows the namespace that we are in */
    int unix_sockets; /* the list of them there */
    struct report *report;
    struct attached tree, data;
    bool has_layer;
    unsigned long serial;
    struct cgroup_share share;
    struct cgroup group; /* made ahead for the next run, like its init */
    bool has_group;
    struct waiting_init next;
    unsigned cpus;
    int fds[DESCRIPTORS_MAX]; /* that came with the message being served */
    int fd_count;
};

/* Places of the descriptors that come with a run. */
enum { FD_TREE, FD_STDIN, FD_STDOUT, FD_STDERR, FD_DATA };

/* slot.c: mounts what the run wants to see. */
int slot_mount(struct slot *slot, const struct message_head *head, struct fault *fault);
/* Closes what came with the message. */
void slot_close_descriptors(struct slot *slot);
/* Turns TREE_NEXT into the layer, or lets it go. */
bool slot_keep_layer(struct slot *slot, bool wanted);

/* Takes another network namespace if anything of a run is left in this one; `peer` is
 * the socket of the run's init, which may still be dying. */
int slot_renew_network(struct slot *slot, ino_t peer, struct fault *fault);

/* run.c: makes the next run's cgroup and starts its init, unless they are there. */
int run_prepare(struct slot *slot, struct fault *fault);
/* Runs one request. `done` is called with the answer, before what can wait is cleaned up.
 * False: the client is gone. */
bool run_serve(struct slot *slot, const struct request *request, const char *bytes, size_t length,
               void (*done)(const struct slot *, struct answer *));

#endif
