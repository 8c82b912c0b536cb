#include "files/byte_source.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fastdata {
namespace {

[[noreturn]] void failed(const std::string &path) {
    throw ReadError(path + ": cannot read: " + std::strerror(errno));
}

}  // namespace

File::File(const std::string &path)
    // Without O_NONBLOCK, opening a pipe that nobody writes to would hang.
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) failed(path_);
    struct stat status;
    const bool known = fstat(fd_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
        const int error = errno;
        close(fd_);  // may set errno; no destructor runs for a constructor that throws
        errno = error;
        if (!known) failed(path_);
        throw ReadError(path_ + ": not a regular file");
    }
    size_ = static_cast<uint64_t>(status.st_size);
}

File::~File() { close(fd_); }

void File::read(uint64_t offset, uint8_t *out, size_t size) const {
    size_t done = 0;
    while (done < size) {
        const ssize_t got =
            pread(fd_, out + done, size - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) failed(path_);
        if (got == 0) {
            throw ReadError(path_ + ": the file ends " + std::to_string(size - done) +
                            " bytes too early");
        }
        done += static_cast<size_t>(got);
    }
}

Bytes File::read(uint64_t offset, size_t size, ReadBuffer &buffer) const {
    if (offset > size_ || size > size_ - offset) {
        throw ReadError(path_ + ": " + std::to_string(size) + " bytes at " +
                        std::to_string(offset) + " lie outside its " + std::to_string(size_) +
                        " bytes");
    }
    uint8_t *memory = buffer.grow(size);
    read(offset, memory, size);
    return {memory, size};
}

Bytes FileSet::read(uint32_t number, uint64_t offset, uint32_t size, ReadBuffer &buffer) const {
    return file(number)->read(offset, size, buffer);
}

std::shared_ptr<const File> FileSet::file(uint32_t number) const {
    if (number >= paths_.size()) {
        throw ReadError("the catalog says shard " + std::to_string(number) + ", there are " +
                        std::to_string(paths_.size()));
    }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (open_[number]) return open_[number];
    }
    // Opening may take long, so nobody waits for it. If two threads open a file at once, one of the
    // two is closed again after its read.
    auto opened = std::make_shared<const File>(paths_[number]);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!open_[number] && left_ > 0) {
        open_[number] = opened;
        --left_;
    }
    return opened;
}

Bytes WholeFiles::read(size_t row, ReadBuffer &buffer) const {
    const File file(paths_[row]);
    if (file.size() > UINT32_MAX) throw ReadError(paths_[row] + ": larger than 4 GiB");
    return file.read(0, static_cast<size_t>(file.size()), buffer);
}

}  // namespace fastdata
