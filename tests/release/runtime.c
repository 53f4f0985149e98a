/* The first part of an AppImage: it mounts the file system that follows it in the same file, and starts
 * AppRun in there. Where FUSE cannot be used, it unpacks it into a temporary folder instead.
 *
 * Format: https://github.com/AppImage/AppImageSpec/blob/master/draft.md (type 2)
 * Linked statically with squashfuse, libfuse 3 and Zstandard, so that it needs nothing but a kernel, and
 * fusermount3 for mounting.
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 32
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <squashfuse/ll.h>
#include <squashfuse/traverse.h>
#include <squashfuse/util.h>

/* The file system is compressed with Zstandard only: the library's other methods are left out. */
int LZ4_decompress_safe(const char *in, char *out, int size, int room) { return -1; }
int lzo1x_decompress_safe(const void *in, size_t size, void *out, size_t *room, void *work) { return -1; }
int uncompress(void *out, unsigned long *room, const void *in, unsigned long size) { return -1; }
int lzma_stream_buffer_decode(void *limit, unsigned flags, void *a, const void *in, void *at, size_t size,
                              void *out, void *to, size_t room) { return -1; }

static int fail(const char *what, const char *name) {
    fprintf(stderr, "%s %s: %s\n", what, name, strerror(errno));
    return 127;
}

/* Where the file system begins: behind the section headers, which end an ELF file. 0 if it has none. */
static size_t image_offset(const char *self) {
    Elf64_Ehdr header;
    int file = open(self, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, &header, sizeof header);
    if (file >= 0) close(file);
    return got == sizeof header ? header.e_shoff + (size_t)header.e_shentsize * header.e_shnum : 0;
}

static int new_folder(char *path, const char *fallback, const char *name) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent || access(parent, W_OK)) parent = access(fallback, W_OK) ? "/tmp" : fallback;
    if (snprintf(path, PATH_MAX, "%s/%s-XXXXXX", parent, name) >= PATH_MAX) errno = ENAMETOOLONG;
    else if (mkdtemp(path)) return 0;
    return fail("cannot create a folder in", parent);
}

/* Become AppRun in `folder`; returns only if that fails. */
static int start(const char *folder, const char *self, char **argv) {
    char program[PATH_MAX];
    if (snprintf(program, sizeof program, "%s/AppRun", folder) >= PATH_MAX) return 127;
    setenv("APPDIR", folder, 1);
    setenv("APPIMAGE", self, 1);
    setenv("ARGV0", argv[0], 1);
    execv(program, argv);
    return fail("cannot start", program);
}

/* -- unpacking ---------------------------------------------------------------------------------------- */

static int write_file(sqfs *fs, sqfs_inode *inode, const char *path) {
    static char part[1 << 20];
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, inode->base.mode & 0777);
    if (file < 0) return -1;
    sqfs_off_t at = 0, size = 0;
    do {
        size = sizeof part;
        if (sqfs_read_range(fs, inode, at, &size, part)) errno = EIO, size = -1;
        for (sqfs_off_t done = 0; done < size;) {
            ssize_t now = write(file, part + done, (size_t)(size - done));
            if (now < 0 && errno == EINTR) continue;
            if (now < 0) { size = -1; break; }
            done += now;
        }
        at += size;
    } while (size > 0);
    int kept = errno;
    if (close(file) && size == 0) return -1;
    errno = kept;
    return size == 0 ? 0 : -1;
}

static int write_entry(sqfs *fs, sqfs_inode_id id, const char *path) {
    sqfs_inode inode;
    if (sqfs_inode_get(fs, &inode, id)) { errno = EIO; return -1; }
    if (S_ISDIR(inode.base.mode)) return mkdir(path, 0755) && errno != EEXIST ? -1 : 0;
    if (S_ISREG(inode.base.mode)) return write_file(fs, &inode, path);
    if (!S_ISLNK(inode.base.mode)) return 0;
    char target[PATH_MAX];
    size_t room = sizeof target;
    if (sqfs_readlink(fs, &inode, target, &room)) { errno = EIO; return -1; }
    unlink(path);
    return symlink(target, path);
}

static int unpack(const char *self, size_t offset, const char *folder) {
    sqfs fs;
    sqfs_traverse walk;
    sqfs_err error = SQFS_OK;
    char path[PATH_MAX];
    if (sqfs_open_image(&fs, self, offset)) return 127;
    if (sqfs_traverse_open(&walk, &fs, sqfs_inode_root(&fs))) { errno = EIO; return fail("cannot read", self); }
    while (sqfs_traverse_next(&walk, &error)) {
        if (walk.dir_end) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, walk.path) >= PATH_MAX) errno = ENAMETOOLONG;
        else if (!write_entry(&fs, walk.entry.inode, path)) continue;
        return fail("cannot unpack", walk.path);
    }
    if (error) { errno = EIO; return fail("cannot read", self); }
    sqfs_traverse_close(&walk);
    sqfs_destroy(&fs);
    return 0;
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *at) { return remove(path); }

/* Unpack into a temporary folder, run it, and remove the folder. */
static int unpack_and_run(const char *self, size_t offset, char **argv) {
    char folder[PATH_MAX];
    int status = new_folder(folder, "/var/tmp", "inglenook-unpacked");
    if (status) return status;
    status = unpack(self, offset, folder);
    if (!status) {
        signal(SIGINT, SIG_IGN); /* it goes to the program too, which ends then */
        pid_t child = fork();
        if (child == 0) {
            signal(SIGINT, SIG_DFL);
            _exit(start(folder, self, argv));
        }
        int how = 0;
        while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) {}
        status = child < 0 ? 127 : WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    }
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

/* -- mounting ----------------------------------------------------------------------------------------- */

static const struct fuse_lowlevel_ops OPERATIONS = {
    .getattr = sqfs_ll_op_getattr, .opendir = sqfs_ll_op_opendir, .releasedir = sqfs_ll_op_releasedir,
    .readdir = sqfs_ll_op_readdir, .lookup = sqfs_ll_op_lookup, .open = sqfs_ll_op_open,
    .release = sqfs_ll_op_release, .read = sqfs_ll_op_read, .readlink = sqfs_ll_op_readlink,
    .forget = sqfs_ll_op_forget,
};

/* Answer the kernel until nobody holds the other end of `alive`. */
static void serve(struct fuse_session *session, int alive) {
    struct fuse_buf request = {0};
    struct pollfd wait[2] = {{.fd = fuse_session_fd(session), .events = POLLIN}, {.fd = alive, .events = 0}};
    while (!fuse_session_exited(session)) {
        if (poll(wait, 2, -1) < 0 && errno != EINTR) break;
        if (wait[0].revents) {
            int got = fuse_session_receive_buf(session, &request);
            if (got == -EINTR || got == -EAGAIN) continue;
            if (got <= 0) break;
            fuse_session_process_buf(session, &request);
        } else if (wait[1].revents) break;
    }
    free(request.mem);
}

/* The process that holds the mount. It writes a byte to `ready` when there is one. */
static int hold_mount(const char *self, size_t offset, const char *folder, int ready, int alive) {
    char *words[] = {"inglenook", "-o", "ro,nodev,nosuid,subtype=inglenook,fsname=inglenook", NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, words);
    sqfs_ll *image = sqfs_ll_open(self, offset);
    if (!image) return 1;
    struct fuse_session *session = fuse_session_new(&arguments, &OPERATIONS, sizeof OPERATIONS, image);
    if (!session || fuse_session_mount(session, folder)) return 1;
    if (write(ready, "", 1) != 1) return 1;
    close(ready);
    setsid();
    int null = open("/dev/null", O_RDWR);
    if (null >= 0)
        for (int each = 0; each < 3; each++) dup2(null, each);
    for (int each = SIGHUP; each <= SIGTERM; each++)
        if (each == SIGHUP || each == SIGINT || each == SIGTERM) signal(each, SIG_IGN);
    serve(session, alive);
    fuse_session_unmount(session);
    rmdir(folder);
    return 0;
}

/* Mount and start; returns -1 if it cannot be mounted. */
static int mount_and_run(const char *self, size_t offset, char **argv) {
    char folder[PATH_MAX], answer;
    int ready[2], alive[2];
    if (new_folder(folder, "/tmp", ".mount_inglenook")) return -1;
    if (pipe2(ready, O_CLOEXEC) || pipe2(alive, 0)) return fail("cannot create", "a pipe");
    pid_t child = fork();
    if (child == 0) {
        close(ready[0]);
        close(alive[1]);
        pid_t second = fork(); /* so that the program does not get a child that it does not know */
        _exit(second == 0 ? hold_mount(self, offset, folder, ready[1], alive[0]) : second < 0);
    }
    close(ready[1]);
    close(alive[0]);
    if (child > 0) waitpid(child, NULL, 0);
    ssize_t got;
    while ((got = read(ready[0], &answer, 1)) < 0 && errno == EINTR) {}
    close(ready[0]);
    if (got == 1) return start(folder, self, argv);
    close(alive[1]);
    rmdir(folder);
    return -1;
}

/* ----------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return fail("cannot find", "this program's file");
    self[length] = 0;
    size_t offset = image_offset(self);
    if (!offset) return fail("cannot read", self);
    const char *asked = argc > 1 ? argv[1] : "";
    if (!strcmp(asked, "--appimage-offset")) return printf("%zu\n", offset) < 0;
    if (!strcmp(asked, "--appimage-extract")) {
        if (mkdir("squashfs-root", 0755) && errno != EEXIST) return fail("cannot create", "squashfs-root");
        return unpack(self, offset, "squashfs-root");
    }
    if (!strcmp(asked, "--appimage-help"))
        return puts("--appimage-extract          unpack into the folder squashfs-root here\n"
                    "--appimage-extract-and-run  unpack into a temporary folder, and start the program there\n"
                    "--appimage-offset           print where the file system begins, in bytes\n"
                    "Anything else goes to the program.") < 0;
    const char *variable = getenv("APPIMAGE_EXTRACT_AND_RUN");
    int unpacked = !strcmp(asked, "--appimage-extract-and-run");
    if (unpacked) argv[1] = argv[0], argv++;
    if (!unpacked && !(variable && *variable)) {
        int status = mount_and_run(self, offset, argv);
        if (status >= 0) return status;
        fprintf(stderr, "It is unpacked into a temporary folder, because it cannot be mounted.\n");
    }
    return unpack_and_run(self, offset, argv);
}
