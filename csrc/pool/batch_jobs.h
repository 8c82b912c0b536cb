// What is done with the samples of a batch: read, check, decode the crop, resize and flip it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/region.h"
#include "files/byte_source.h"
#include "pool/worker_pool.h"
#include "resize/resize.h"

namespace fastdata {

// One crop of a batch. The region of the image that it shows begins at (x, y) and has the size
// `plan.source_*`.
struct CropItem {
    size_t place = 0;  // in the batch, and the sample's row of the source
    ImageSize image;   // what the plan was made for
    int64_t x = 0;
    int64_t y = 0;
    ResizePlan plan;
    uint8_t *out = nullptr;  // out_height x out_width RGB pixels, rows without gaps
};

// Decodes the crop of a JPEG, resizes and flips it into `item.out`. Throws DecodeError.
void decode_crop(Worker &worker, const Bytes &bytes, const CropItem &item);

// Resizes and flips the crop of a decoded image, RGB in rows without gaps, into `item.out`. Throws
// std::invalid_argument if the region reaches beyond the image.
void resize_crop(const uint8_t *pixels, const ImageSize &size, const CropItem &item);

// Decodes crops of a batch, perhaps not for all of its places. `crcs` holds the CRC-32C of every
// place, or nothing if there is none to check.
class FillJob : public BatchJob {
  public:
    FillJob(std::shared_ptr<const ByteSource> source, std::vector<uint32_t> crcs,
            std::vector<CropItem> items, bool keep_going)
        : BatchJob(items.size(), keep_going),
          source_(std::move(source)),
          crcs_(std::move(crcs)),
          items_(std::move(items)) {}

  private:
    void work(Worker &worker, size_t row) override;

    std::shared_ptr<const ByteSource> source_;
    std::vector<uint32_t> crcs_;
    std::vector<CropItem> items_;
};

// Samples in memory. Large ones are not kept but read again, so that what a batch holds stays
// bounded.
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
class LoadJob : public BatchJob {
  public:
    LoadJob(std::shared_ptr<const ByteSource> source, size_t rows, bool keep_going)
        : BatchJob(rows, keep_going),
          source_(std::move(source)),
          samples_(std::make_shared<LoadedSamples>(source_, rows)),
          sizes_(rows) {}

    // Both are valid once wait() was true. Samples that are no JPEGs have no size.
    std::shared_ptr<LoadedSamples> samples() const { return samples_; }
    const std::vector<ImageSize> &sizes() const { return sizes_; }

  private:
    void work(Worker &worker, size_t row) override;

    std::shared_ptr<const ByteSource> source_;
    std::shared_ptr<LoadedSamples> samples_;
    std::vector<ImageSize> sizes_;
};

}  // namespace fastdata
