/* What slot.c, run.c and inside.c share: the state of a slot. */
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

/* What the program's process tells of itself before it is executed. */
struct report {
    bool failed;    /* our own fault: `fault` says why */
    int exec_error; /* errno, if there was no program to execute */
    uint64_t start_ns;
    struct fault fault;
};

/* In memory that the slot shares with its inits. They take turns: one of them works on it, the
 * other sleeps. */
struct slot {
    const struct slot_settings *settings;
    unsigned cpus;
    cpu_set_t cores; /* on which programs may run */
    int self;         /* a pidfd: tells init that the slot is dead */
    int net;          /* the directory /proc/PID/net, which shows the namespace that we are in */
    int unix_sockets; /* the list of them there */
    int proc;         /* a /proc; its sys/net is that of the namespace, too */
    int children;     /* for init: a signalfd that tells of children that ended */
    int done;         /* for the slot: an eventfd that tells that init is about to end */
    struct attached tree, data;
    bool has_layer;
    uint64_t layer_bytes; /* which the compile's cgroup was charged for, and runs use */
    unsigned long serial;
    struct cgroup_share share;
    struct guard_machine machine;

    /* Made ahead for the next run: its cgroup, and an init that waits to be told what to run. */
    struct cgroup group;
    bool has_group;
    pid_t init;    /* 0: none */
    int init_fd;   /* tells that it ended */
    pid_t dying;   /* the last run's, whose mounts the kernel takes apart: nobody waits for that */
    bool failed;   /* it could not get ready: `report.fault` says why */
    uint64_t disk_bytes; /* that the last run asked for, as the next one may */
    uint32_t files;

    /* The message being served. */
    bool has_message; /* it came before there was an init, or is not for inits */
    bool running;     /* a run has begun and is not answered */
    bool started;     /* its program was executed, or could not be */
    bool kept;        /* it was a compile */
    uint64_t number, since_ns;
    bool used;        /* a run has been in the cgroup and in the network */
    bool client_gone;
    struct report report;
    int fds[DESCRIPTORS_MAX]; /* of whoever received it */
    int fd_count;
    uid_t sender; /* as the kernel says */
    size_t length;
    char bytes[MESSAGE_MAX_BYTES];
};

/* Places of the descriptors that come with a run. */
enum { FD_TREE, FD_STDIN, FD_STDOUT, FD_STDERR, FD_DATA };

/* ---- slot.c: for init, too ---- */

/* 1: there is a message; 0: the client is gone. */
int slot_receive(struct slot *slot);
void slot_answer(const struct slot *slot, struct answer *answer);
/* Closes what came with the message. */
void slot_close_descriptors(struct slot *slot);
/* Mounts what the run wants to see. */
int slot_mount(struct slot *slot, const struct message_head *head, struct fault *fault);
/* Opens the input again in a mount of its own, so that the program reads neither its path nor, from
 * the time of the last access, whether others have read it. Where that fails it stays as it is. */
void slot_hide_input(struct slot *slot);
/* Turns TREE_NEXT into the layer, or lets it go. */
bool slot_keep_layer(struct slot *slot, bool wanted);

/* ---- run.c ---- */

/* The life of a run's pid 1; `slot` is a struct slot. */
int run_init(void *slot);

/* ---- inside.c ---- */

/* For the slot: limits that are the same for every run. */
int inside_set_limits(struct fault *fault);
/* What does not depend on the request. */
int inside_prepare(const struct slot *slot, struct fault *fault);
/* The rest of it. */
int inside_lay_out(const struct slot *slot, const struct message_head *head, struct fault *fault);
/* Mounts a run's tmpfs on `path` with its directories. */
int inside_mount_scratch(const char *path, uint64_t disk_bytes, uint32_t files, uid_t uid,
                         struct fault *fault);
/* Free space on the tmpfs that the run wrote to. */
void inside_measure_disk(const struct message_head *head, uint64_t *bytes, uint64_t *files);
/* What a layer will hold of the machine's memory, if it is kept. */
uint64_t inside_measure_layer(void);
/* Lets go of what the run's mounts hold. */
void inside_clear(void);
/* The process that executes the program; -1: there is none. */
pid_t inside_start(struct slot *slot, const struct request *request, const int stdio[3]);

#endif
