// Where the encoded bytes of a batch come from: parts of shards, whole files, or several sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/memory_budget.h"

namespace fastdata {

// Bytes that cannot be read: a failing disk, a missing file, a truncated or damaged container.
class ReadError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

struct Bytes {
    const uint8_t *data = nullptr;
    size_t size = 0;
};

// A thread's buffer for what it reads, which grows to its largest sample.
class ReadBuffer {
  public:
    explicit ReadBuffer(Lease &lease) : lease_(lease) {}

    // Returns room for `size` bytes. If that is much, it first waits for its share of the budget,
    // and for what decoding the bytes may take as well: a thread that held one and waited for the
    // other could wait forever.
    uint8_t *grow(size_t size) {
        if (size >= kSmallDecode) lease_.take(size + decoding);
        if (memory_.size() < size) memory_.resize(size);
        return memory_.data();
    }
    void free() { memory_ = {}; }

    size_t decoding = 0;  // bytes that decoding the next sample takes at most

  private:
    Lease &lease_;
    std::vector<uint8_t> memory_;
};

// Sources, and the files that they share, derive from enable_shared_from_this so that nanobind uses
// their own shared_ptr: a native thread that drops the last one must not need Python.
class ByteSource : public std::enable_shared_from_this<ByteSource> {
  public:
    virtual ~ByteSource() = default;

    virtual size_t rows() const = 0;

    // Returns the bytes of a row of the batch, in the buffer or in memory that outlives the batch.
    // Many threads call it at once. Throws ReadError.
    virtual Bytes read(size_t row, ReadBuffer &buffer) const = 0;
};

// An open regular file. Throws ReadError if it cannot be opened or read.
class File {
  public:
    explicit File(const std::string &path);
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    uint64_t size() const { return size_; }  // when it was opened
    // Reads exactly `size` bytes, through interrupts and short reads.
    void read(uint64_t offset, uint8_t *out, size_t size) const;
    // Reads into a buffer, which is not grown for bytes that the file cannot have.
    Bytes read(uint64_t offset, size_t size, ReadBuffer &buffer) const;

  private:
    std::string path_;
    int fd_;
    uint64_t size_ = 0;
};

// The shards of a data set. The first `most_open` that are read stay open; others are opened for
// each read, so that no file is ever closed while another thread reads from it.
class FileSet : public std::enable_shared_from_this<FileSet> {
  public:
    FileSet(std::vector<std::string> paths, size_t most_open)
        : paths_(std::move(paths)), open_(paths_.size()), left_(most_open) {}

    Bytes read(uint32_t file, uint64_t offset, uint32_t size, ReadBuffer &buffer) const;

  private:
    std::shared_ptr<const File> file(uint32_t number) const;

    std::vector<std::string> paths_;
    mutable std::mutex mutex_;
    mutable std::vector<std::shared_ptr<const File>> open_;
    mutable size_t left_;
};

// Ranges of the shards of a data set.
class FileRanges : public ByteSource {
  public:
    FileRanges(std::shared_ptr<const FileSet> files, std::vector<uint32_t> numbers,
               std::vector<uint64_t> offsets, std::vector<uint32_t> sizes)
        : files_(std::move(files)),
          numbers_(std::move(numbers)),
          offsets_(std::move(offsets)),
          sizes_(std::move(sizes)) {}

    size_t rows() const override { return numbers_.size(); }
    Bytes read(size_t row, ReadBuffer &buffer) const override {
        return files_->read(numbers_[row], offsets_[row], sizes_[row], buffer);
    }

  private:
    std::shared_ptr<const FileSet> files_;
    std::vector<uint32_t> numbers_;
    std::vector<uint64_t> offsets_;
    std::vector<uint32_t> sizes_;
};

// Rows of several sources, for a batch that mixes data sets.
class MixedRows : public ByteSource {
  public:
    // Row i is row `rows[i]` of `parts[numbers[i]]`. Throws std::out_of_range if there is none.
    MixedRows(std::vector<std::shared_ptr<ByteSource>> parts, std::vector<uint32_t> numbers,
              std::vector<uint32_t> rows)
        : parts_(std::move(parts)), numbers_(std::move(numbers)), rows_(std::move(rows)) {
        for (size_t i = 0; i < numbers_.size(); ++i) {
            if (rows_.at(i) >= parts_.at(numbers_[i])->rows()) throw std::out_of_range("rows");
        }
    }

    size_t rows() const override { return numbers_.size(); }
    Bytes read(size_t row, ReadBuffer &buffer) const override {
        return parts_[numbers_[row]]->read(rows_[row], buffer);
    }

  private:
    std::vector<std::shared_ptr<ByteSource>> parts_;
    std::vector<uint32_t> numbers_;
    std::vector<uint32_t> rows_;
};

// Whole files by their paths.
class WholeFiles : public ByteSource {
  public:
    explicit WholeFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}

    size_t rows() const override { return paths_.size(); }
    Bytes read(size_t row, ReadBuffer &buffer) const override;

  private:
    std::vector<std::string> paths_;
};

}  // namespace fastdata
