// Where the encoded bytes of a batch come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "system/memory_budget.h"

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

// A thread's buffer for what it reads; it grows to the largest sample and is used again.
class ReadBuffer {
  public:
    explicit ReadBuffer(Lease &lease) : lease_(lease) {}

    // Before a large buffer grows, memory is waited for: for it and for `beside`, what decoding
    // its content may take at most.
    uint8_t *grow(size_t size) {
        if (size >= kSmallDecode) lease_.take(size + beside);
        if (memory_.size() < size) memory_.resize(size);
        return memory_.data();
    }
    void free() { memory_ = {}; }

    size_t beside = 0;

  private:
    Lease &lease_;
    std::vector<uint8_t> memory_;
};

// Sources, and the files that they share, find their own shared_ptr, so that a native thread which
// lets go of the last one needs nothing of Python.
class ByteSource : public std::enable_shared_from_this<ByteSource> {
  public:
    virtual ~ByteSource() = default;

    virtual size_t rows() const = 0;

    // The bytes of a row of the batch, in the buffer or in memory that outlives the batch. Called
    // by many threads at once. Throws ReadError.
    virtual Bytes read(size_t row, ReadBuffer &buffer) const = 0;
};

// An open file. Throws ReadError where it cannot be opened or read.
class File {
  public:
    explicit File(const std::string &path);
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    // When it was opened.
    uint64_t size() const { return size_; }
    // Reads exactly `size` bytes, through interrupts and short reads.
    void read(uint64_t offset, uint8_t *out, size_t size) const;
    // The same into a buffer, which does not grow for bytes that the file cannot have.
    Bytes read(uint64_t offset, size_t size, ReadBuffer &buffer) const;

  private:
    std::string path_;
    int fd_;
    uint64_t size_ = 0;
};

// The shards of a data set. They stay open once they were read, up to a number; the rest is opened
// for each read, so that no file is closed while another thread reads from it.
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
    // Row i is row `rows[i]` of `parts[numbers[i]]`. Throws std::out_of_range where there is none.
    MixedRows(std::vector<std::shared_ptr<ByteSource>> parts, std::vector<uint32_t> numbers,
              std::vector<uint32_t> rows)
        : parts_(std::move(parts)), numbers_(std::move(numbers)), rows_(std::move(rows)) {
        for (size_t i = 0; i < numbers_.size(); i++) {
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
