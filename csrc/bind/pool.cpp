#include <memory>
#include <utility>

#include <nanobind/stl/shared_ptr.h>

#include "base/process.h"
#include "bind/convert.h"
#include "bind/interpreter.h"
#include "bind/register.h"
#include "pool/batch_jobs.h"
#include "pool/worker_pool.h"

namespace fastdata {
namespace {

// A pool as Python holds it. Its threads are joined without the GIL: whoever drops the pool holds
// it, and to end the job that a thread is working on may take it too.
class PoolHandle {
  public:
    PoolHandle(int threads, const JpegLimits &limits, size_t memory, bool libjpeg)
        : pool_(std::make_unique<WorkerPool>(
              threads, limits, memory, libjpeg ? JpegWay::kSmallJpeg : JpegWay::kFastest)) {}
    ~PoolHandle() {
        WithoutLock without_lock;
        pool_.reset();
    }
    PoolHandle(const PoolHandle &) = delete;
    PoolHandle &operator=(const PoolHandle &) = delete;

    void submit(std::shared_ptr<BatchJob> job) { pool_->submit(std::move(job)); }
    size_t threads() const { return pool_->threads(); }

  private:
    OfThisProcess<WorkerPool> pool_;
};

// A job as Python holds it, with the memory that threads write to. Destroying it waits for them, so
// wherever an exception drops a batch, nobody writes to memory that was given back.
class JobHandle {
  public:
    JobHandle(std::shared_ptr<BatchJob> job, Pixels memory)
        : job_(std::make_unique<std::shared_ptr<BatchJob>>(std::move(job))),
          memory_(std::move(memory)) {}
    ~JobHandle() {
        if (!job_.is_here()) return;
        WithoutLock without_lock;
        (*job_)->cancel();
        while (!(*job_)->wait(60)) {
        }
    }
    JobHandle(const JobHandle &) = delete;
    JobHandle &operator=(const JobHandle &) = delete;

    void cancel() { (*job_)->cancel(); }
    bool wait(double seconds) { return (*job_)->wait(seconds); }
    const std::map<size_t, RowFailure> &failures() const { return (*job_)->failures(); }

  private:
    OfThisProcess<std::shared_ptr<BatchJob>> job_;
    Pixels memory_;
};

class LoadHandle : public JobHandle {
  public:
    explicit LoadHandle(const std::shared_ptr<LoadJob> &job)
        : JobHandle(job, Pixels()), load_(job) {}

    auto samples() const { return load_->samples(); }
    const std::vector<ImageSize> &sizes() const { return load_->sizes(); }

  private:
    std::shared_ptr<LoadJob> load_;
};

std::shared_ptr<JobHandle> fill(PoolHandle &pool, std::shared_ptr<ByteSource> source,
                                const Column<uint32_t> &crcs, const Column<int64_t> &places,
                                const CropTables &plan, const Pixels &out, bool keep_going) {
    const size_t rows = out.shape(0), height = out.shape(1), width = out.shape(2);
    require(source->rows() >= rows, "the source must have a row for each place of the batch");
    require(crcs.size() == 0 || crcs.size() == rows, "crcs must be empty or one for each place");
    require(plan.rows() == rows, "the crop plan must have a row for each place of the batch");
    std::vector<CropItem> items;
    items.reserve(places.size());
    for (size_t i = 0; i < places.size(); ++i) {
        const auto row = static_cast<size_t>(places.data()[i]);
        require(row < rows, "places must lie within the batch");
        uint8_t *image = out.data() + row * height * width * 3;
        items.push_back(plan.item(row, image, width, height));
    }
    auto job = std::make_shared<FillJob>(std::move(source), copy(crcs), std::move(items),
                                         keep_going);
    auto handle = std::make_shared<JobHandle>(job, out);
    pool.submit(job);
    return handle;
}

std::shared_ptr<LoadHandle> load(PoolHandle &pool, std::shared_ptr<ByteSource> source,
                                 bool keep_going) {
    const size_t rows = source->rows();
    auto job = std::make_shared<LoadJob>(std::move(source), rows, keep_going);
    auto handle = std::make_shared<LoadHandle>(job);
    pool.submit(job);
    return handle;
}

nb::list failures(const JobHandle &job) {
    nb::list found;
    for (const auto &[row, failure] : job.failures()) {
        // As bytes: messages may hold paths, which need not be UTF-8.
        nb::bytes message(failure.message.data(), failure.message.size());
        found.append(nb::make_tuple(row, static_cast<int>(failure.kind), message));
    }
    return found;
}

nb::list image_sizes(const LoadHandle &job) {
    nb::list sizes;
    for (const ImageSize &size : job.sizes()) sizes.append(nb::make_tuple(size.width, size.height));
    return sizes;
}

}  // namespace

void register_pool(nb::module_ &m) {
    nb::class_<LoadedSamples, ByteSource>(m, "LoadedSamples", "Samples in memory.");
    nb::class_<JobHandle>(
        m, "BatchJob", "A batch that is being worked on; dropping it waits until it is left alone.")
        .def("cancel", &JobHandle::cancel, "Start no further row.")
        .def("wait", &JobHandle::wait, "seconds"_a, nb::call_guard<WithoutLock>(),
             "Wait until no thread touches the batch; False if that takes longer.")
        .def("failures", &failures,
             nb::sig("def failures(self) -> list[tuple[int, int, bytes]]"),
             "Row, kind and message of each failure, by row, once wait() was true. Only a job that "
             "keeps going has more than the first.");
    nb::class_<LoadHandle, JobHandle>(m, "LoadJob", "Samples being read into memory and probed.")
        .def("samples", &LoadHandle::samples, "What was read, as a source for fill().")
        .def("sizes", &image_sizes, nb::sig("def sizes(self) -> list[tuple[int, int]]"),
             "Width and height of each JPEG; zeros for other samples.");
    nb::class_<PoolHandle>(m, "WorkerPool",
                           "Threads that read and decode batches. Images that need much memory "
                           "share `memory` bytes. With `libjpeg`, libjpeg-turbo decodes alone: the "
                           "same pixels, to compare with.")
        .def(nb::init<int, const JpegLimits &, size_t, bool>(), "threads"_a, "limits"_a,
             "memory"_a, "libjpeg"_a = false)
        .def_prop_ro("threads", &PoolHandle::threads,
                     "Threads that the system started, perhaps fewer than asked for.")
        .def("fill", &fill, "source"_a, "crcs"_a, "places"_a, "plan"_a, "out"_a.noconvert(),
             "keep_going"_a,
             "Decode the crops at `places` of a batch into `out`, which the job keeps alive and "
             "nobody else may touch until it is done.")
        .def("load", &load, "source"_a, "keep_going"_a, "Read samples into memory and probe them.");
}

}  // namespace fastdata
