// Fills batches of pixels on a pool of threads: read, check, decode the crop, resize, flip.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "files/byte_source.h"
#include "resize/resize.h"
#include "pool/worker_pool.h"

namespace fastdata {

// What one sample of a batch wants. `plan.source_*` is the size of the region at (x, y).
struct CropItem {
    size_t place = 0;  // in the batch: which of the source's rows it is
    ImageSize image;   // that the plan was made for
    int64_t x = 0;
    int64_t y = 0;
    ResizePlan plan;
    uint8_t *out = nullptr;  // out_height x out_width RGB pixels, rows without gaps
};

// Decodes one crop of an encoded image, resizes and flips it to where the item says.
void decode_crop(Worker &worker, const Bytes &bytes, const CropItem &item);

// Decodes crops of a batch; items may leave out places of it. `crcs` holds the CRC-32C of every
// place, or nothing where there is none to check.
class FillJob : public Job {
  public:
    FillJob(std::shared_ptr<const ByteSource> source, std::vector<uint32_t> crcs,
            std::vector<CropItem> items, bool keep_going)
        : Job(items.size(), keep_going),
          source_(std::move(source)),
          crcs_(std::move(crcs)),
          items_(std::move(items)) {}

  private:
    void work(Worker &worker, size_t row) override;

    std::shared_ptr<const ByteSource> source_;
    std::vector<uint32_t> crcs_;
    std::vector<CropItem> items_;
};

// Samples in memory; large ones stay where they are, and are read again.
class LoadedSamples : public ByteSource {
  public:
    LoadedSamples(std::shared_ptr<const ByteSource> source, size_t rows)
        : source_(std::move(source)), data_(rows) {}

    void set(size_t row, const Bytes &bytes) {
        if (bytes.size < kSmallDecode) data_[row].emplace(bytes.data, bytes.data + bytes.size);
    }
    size_t rows() const override { return data_.size(); }
    Bytes read(size_t row, ReadBuffer &buffer) const override {
        if (!data_[row]) return source_->read(row, buffer);
        return {data_[row]->data(), data_[row]->size()};
    }

  private:
    std::shared_ptr<const ByteSource> source_;
    std::vector<std::optional<std::vector<uint8_t>>> data_;
};

// Reads the samples of a batch into memory and probes the JPEGs among them, for crops that cannot
// be planned before the size of the image is known.
class LoadJob : public Job {
  public:
    LoadJob(std::shared_ptr<const ByteSource> source, size_t rows, bool keep_going)
        : Job(rows, keep_going),
          source_(std::move(source)),
          samples_(std::make_shared<LoadedSamples>(source_, rows)),
          sizes_(rows) {}

    // Both are valid after wait() was true. What is no JPEG has no size.
    std::shared_ptr<LoadedSamples> samples() const { return samples_; }
    const std::vector<ImageSize> &sizes() const { return sizes_; }

  private:
    void work(Worker &worker, size_t row) override;

    std::shared_ptr<const ByteSource> source_;
    std::shared_ptr<LoadedSamples> samples_;
    std::vector<ImageSize> sizes_;
};

}  // namespace fastdata
