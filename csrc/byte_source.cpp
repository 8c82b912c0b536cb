#include "byte_source.h"

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
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) failed(path_);
}

File::~File() { close(fd_); }

size_t File::size() const {
    struct stat status;
    if (fstat(fd_, &status) != 0) failed(path_);
    if (!S_ISREG(status.st_mode)) throw ReadError(path_ + ": not a regular file");
    return size_t(status.st_size);
}

void File::read(uint64_t offset, uint8_t *out, size_t size) const {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd_, out + done, size - done, off_t(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) failed(path_);
        if (got == 0) {
            throw ReadError(path_ + ": ends " + std::to_string(size - done) + " bytes too early");
        }
        done += size_t(got);
    }
}

Bytes FileSet::read(uint32_t number, uint64_t offset, uint32_t size, ReadBuffer &buffer) const {
    uint8_t *memory = buffer.grow(size);
    file(number)->read(offset, memory, size);
    return {memory, size};
}

std::shared_ptr<const File> FileSet::file(uint32_t number) const {
    if (number >= paths_.size()) throw ReadError("no shard " + std::to_string(number));
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (open_[number]) return open_[number];
    }
    auto opened = std::make_shared<const File>(paths_[number]);
    std::lock_guard<std::mutex> lock(mutex_);
    if (!open_[number] && left_ > 0) {
        open_[number] = opened;
        left_--;
    }
    return opened;
}

Bytes WholeFiles::read(size_t row, ReadBuffer &buffer) const {
    File file(paths_[row]);
    size_t size = file.size();
    uint8_t *memory = buffer.grow(size);
    file.read(0, memory, size);
    return {memory, size};
}

}  // namespace fastdata
