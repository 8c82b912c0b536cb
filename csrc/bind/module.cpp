// The Python module fastdata._core: convert, release the GIL, call one function.

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <pthread.h>
#include <unistd.h>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "pool/batch_jobs.h"
#include "files/byte_source.h"
#include "system/crc32c.h"
#include "jpeg/header.h"
#include "jpeg/library.h"
#include "jpeg/transcode.h"
#include "files/lmdb_values.h"
#include "system/process.h"
#include "pool/worker_pool.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace fastdata;

namespace {

// Any buffer of bytes: bytes, memoryview, mmap, a one-dimensional uint8 array. Not copied.
using ByteView = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T, int columns>
using Table = nb::ndarray<const T, nb::shape<-1, columns>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<uint8_t, nb::shape<-1, -1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Image = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Names = std::vector<nb::bytes>;

// How the interpreter ends: threads that come back from the core then never get its lock.
struct Ending {
    std::atomic<bool> begun{false};
    std::atomic<int> returning{0};  // threads that look, or have looked in time
    std::thread::id by;
};
Ending ending;

// Lets other Python threads run for as long as it lives. A daemon thread that wants the interpreter's
// lock when that has ended would have its stack unwound by CPython before 3.14, and nanobind's frames
// on it end the process: it waits here instead, until the process is gone.
class WithoutLock {
  public:
    WithoutLock() : state_(PyEval_SaveThread()) {}
    ~WithoutLock() {
        ending.returning++;
        if (ending.begun && std::this_thread::get_id() != ending.by) {
            ending.returning--;
            for (;;) pause();
        }
        PyEval_RestoreThread(state_);
        ending.returning--;
    }
    WithoutLock(const WithoutLock &) = delete;
    WithoutLock &operator=(const WithoutLock &) = delete;

  private:
    PyThreadState *state_;
};

// Returns once no thread but this one can come back from the core.
void hold_threads() {
    ending.by = std::this_thread::get_id();
    ending.begun = true;
    WithoutLock without_lock;
    while (ending.returning > 0) std::this_thread::yield();
}

template <typename T>
std::vector<T> copy(const Column<T> &column) {
    return {column.data(), column.data() + column.size()};
}

std::vector<std::string> copy(const Names &names) {
    std::vector<std::string> copied;
    copied.reserve(names.size());
    for (const nb::bytes &name : names) copied.emplace_back(name.c_str(), name.size());
    return copied;
}

void require(bool condition, const char *rule) {
    if (!condition) throw nb::value_error(rule);
}

using JpegHeaderTuple = std::tuple<int, int, int, std::string, bool, bool, int, int>;

JpegHeaderTuple probe_jpeg(const ByteView &data, int64_t max_pixels, int max_scans,
                           int max_segments) {
    JpegHeader h;
    {
        WithoutLock without_lock;
        h = read_jpeg_header(data.data(), data.size(), {max_pixels, max_scans, max_segments});
    }
    return {h.width, h.height, h.components, h.sampling, h.progressive, h.arithmetic,
            h.restart_interval, h.scans};
}

std::tuple<nb::object, std::string, bool, bool> transcode_jpeg(
    const ByteView &data, int run_pixels, int64_t max_pixels, int max_scans, int max_segments,
    bool damaged) {
    TranscodeResult result;
    {
        WithoutLock without_lock;
        result = transcode(data.data(), data.size(), run_pixels,
                           {max_pixels, max_scans, max_segments},
                           damaged ? Tolerated::kDamage : Tolerated::kHarmless);
    }
    if (result.outcome != Transcoded::kDone) {
        return {nb::none(), describe(result.outcome), result.warned, result.left_over};
    }
    return {nb::bytes(result.bytes.data(), result.bytes.size()), "", result.warned,
            result.left_over};
}

// What the calling thread keeps from image to image while limits stay the same. Whoever calls has
// seen to the memory.
Worker &here(const JpegLimits &limits) {
    thread_local std::optional<Worker> worker;
    if (!worker || !(worker->limits == limits)) worker.emplace(limits, JpegWay::kFastest, nullptr);
    return *worker;
}

// Ends the row of such a worker, also after an error.
class Row {
  public:
    explicit Row(Worker &worker) : worker_(worker) {}
    ~Row() { worker_.end_row(); }
    Row(const Row &) = delete;
    Row &operator=(const Row &) = delete;

  private:
    Worker &worker_;
};

// Threads that end without the GIL: whoever drops the pool holds it, and a job that a thread is
// working on may belong to Python.
class Pool {
  public:
    Pool(int threads, int64_t max_pixels, int max_scans, int max_segments, size_t memory,
         bool libjpeg)
        : pool_(std::make_unique<WorkerPool>(
              threads, JpegLimits{max_pixels, max_scans, max_segments}, memory,
              libjpeg ? JpegWay::kSmallJpeg : JpegWay::kFastest)) {}
    ~Pool() {
        WithoutLock without_lock;
        pool_.reset();
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    void submit(std::shared_ptr<Job> job) { pool_->submit(std::move(job)); }
    size_t threads() const { return pool_->threads(); }

  private:
    OfThisProcess<WorkerPool> pool_;
};

// A job as Python holds it, with the memory that its threads write to. Its end waits for them:
// wherever an exception drops a batch, nothing is written to memory that was given back.
class Handle {
  public:
    Handle(std::shared_ptr<Job> job, Pixels memory)
        : job_(std::make_unique<std::shared_ptr<Job>>(std::move(job))),
          memory_(std::move(memory)) {}
    ~Handle() {
        if (!job_.is_here()) return;
        WithoutLock without_lock;
        (*job_)->cancel();
        while (!(*job_)->wait(60)) {
        }
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;

    void cancel() { (*job_)->cancel(); }
    bool wait(double seconds) { return (*job_)->wait(seconds); }
    const std::map<size_t, RowFailure> &failures() const { return (*job_)->failures(); }

  private:
    OfThisProcess<std::shared_ptr<Job>> job_;
    Pixels memory_;
};

class LoadHandle : public Handle {
  public:
    explicit LoadHandle(const std::shared_ptr<LoadJob> &job)
        : Handle(job, Pixels()), load_(job) {}

    auto samples() const { return load_->samples(); }
    const std::vector<ImageSize> &sizes() const { return load_->sizes(); }

  private:
    std::shared_ptr<LoadJob> load_;
};

// Row `row` of a crop plan, to be decoded into row `row` of `out`.
CropItem item_of(size_t row, const Table<int64_t, 4> &regions, const Table<int64_t, 2> &scaled,
                 const Table<int64_t, 2> &cut, const Column<bool> &flip, const Pixels &out) {
    const int64_t *region = regions.data() + 4 * row;
    CropItem item;
    item.place = row;
    item.x = region[0];
    item.y = region[1];
    item.plan = {region[2], region[3], scaled.data()[2 * row], scaled.data()[2 * row + 1],
                 cut.data()[2 * row], cut.data()[2 * row + 1], int64_t(out.shape(2)),
                 int64_t(out.shape(1)), flip.data()[row]};
    item.out = out.data() + row * out.shape(1) * out.shape(2) * 3;
    return item;
}

// One image in the thread that calls, which keeps its decoder from call to call.
void decode_here(const ByteView &data, const Table<int64_t, 4> &region,
                 const Table<int64_t, 2> &scaled, const Table<int64_t, 2> &cut,
                 const Column<bool> &flip, const Pixels &out, int64_t max_pixels, int max_scans,
                 int max_segments) {
    require(out.shape(0) == 1 && region.shape(0) == 1 && scaled.shape(0) == 1 &&
                cut.shape(0) == 1 && flip.size() == 1,
            "the crop plan and `out` must have one row");
    const CropItem item = item_of(0, region, scaled, cut, flip, out);
    WithoutLock without_lock;
    Worker &worker = here({max_pixels, max_scans, max_segments});
    const Row row(worker);
    decode_crop(worker, {data.data(), data.size()}, item);
}

// The same of an image that was decoded already.
void resize_here(const Image &image, const Table<int64_t, 4> &region,
                 const Table<int64_t, 2> &scaled, const Table<int64_t, 2> &cut,
                 const Column<bool> &flip, const Pixels &out) {
    require(out.shape(0) == 1 && region.shape(0) == 1 && scaled.shape(0) == 1 &&
                cut.shape(0) == 1 && flip.size() == 1,
            "the crop plan and `out` must have one row");
    const CropItem item = item_of(0, region, scaled, cut, flip, out);
    const int64_t width = int64_t(image.shape(1)), height = int64_t(image.shape(0));
    require(item.x >= 0 && item.y >= 0 && item.plan.source_width <= width &&
                item.plan.source_height <= height && item.x <= width - item.plan.source_width &&
                item.y <= height - item.plan.source_height,
            "the region must lie within the image");
    WithoutLock without_lock;
    ResizeScratch scratch;
    const SourceWindow window = needed(item.plan);
    const uint8_t *first = image.data() + ((item.y + window.y0) * width + item.x + window.x0) * 3;
    resize(item.plan, first, width * 3, item.out, int64_t(out.shape(2)) * 3, scratch);
}

std::tuple<nb::object, int, int> cut_jpeg(const ByteView &data, int x0, int y0, int x1, int y1,
                                          int64_t max_pixels, int max_scans, int max_segments) {
    const SmallJpeg *small;
    {
        WithoutLock without_lock;
        small = here({max_pixels, max_scans, max_segments})
                    .decoder.cut(data.data(), data.size(), {x0, y0, x1, y1});
    }
    if (small == nullptr) return {nb::none(), 0, 0};
    return {nb::bytes(small->bytes.data(), small->bytes.size()), small->covers.x0,
            small->covers.y0};
}

std::shared_ptr<Handle> fill(Pool &pool, std::shared_ptr<ByteSource> source,
                              const Column<uint32_t> &crcs, const Column<int64_t> &places,
                              const Table<int64_t, 2> &sizes, const Table<int64_t, 4> &regions, const Table<int64_t, 2> &scaled,
                              const Table<int64_t, 2> &cut, const Column<bool> &flip,
                              const Pixels &out, bool keep_going) {
    size_t rows = out.shape(0);
    require(source->rows() >= rows, "the source must have a row for each place of the batch");
    require(crcs.size() == 0 || crcs.size() == rows, "crcs must be empty or one for each place");
    require(sizes.shape(0) == rows && regions.shape(0) == rows && scaled.shape(0) == rows &&
                cut.shape(0) == rows && flip.size() == rows,
            "the crop plan must have a row for each place of the batch");
    std::vector<CropItem> items;
    items.reserve(places.size());
    for (size_t i = 0; i < places.size(); i++) {
        size_t row = size_t(places.data()[i]);
        require(row < rows, "places must lie within the batch");
        items.push_back(item_of(row, regions, scaled, cut, flip, out));
        items.back().image = {sizes.data()[2 * row], sizes.data()[2 * row + 1]};
    }
    auto job = std::make_shared<FillJob>(std::move(source), copy(crcs), std::move(items),
                                         keep_going);
    auto handle = std::make_shared<Handle>(job, out);
    pool.submit(job);
    return handle;
}

std::shared_ptr<LoadHandle> load(Pool &pool, std::shared_ptr<ByteSource> source,
                                 bool keep_going) {
    size_t rows = source->rows();
    auto job = std::make_shared<LoadJob>(std::move(source), rows, keep_going);
    pool.submit(job);
    return std::make_shared<LoadHandle>(job);
}

nb::list failures(const Handle &job) {
    nb::list found;
    for (const auto &[row, failure] : job.failures()) {
        // messages may hold paths, which need not be UTF-8
        found.append(nb::make_tuple(row, int(failure.kind), nb::bytes(failure.message.data(),
                                                                      failure.message.size())));
    }
    return found;
}

nb::list image_sizes(const LoadHandle &job) {
    nb::list sizes;
    for (const ImageSize &size : job.sizes()) sizes.append(nb::make_tuple(size.width, size.height));
    return sizes;
}

void translate_decode_error(const std::exception_ptr &error, void *python_type) {
    try {
        std::rethrow_exception(error);
    } catch (const DecodeError &decode_error) {
        PyErr_SetString(static_cast<PyObject *>(python_type), decode_error.what());
    }
}

void translate_read_error(const std::exception_ptr &error, void *) {
    try {
        std::rethrow_exception(error);
    } catch (const ReadError &read_error) {
        PyErr_SetString(PyExc_OSError, read_error.what());
    }
}

void translate_no_thread_error(const std::exception_ptr &error, void *python_type) {
    try {
        std::rethrow_exception(error);
    } catch (const NoThreadError &no_thread) {
        PyErr_SetString(static_cast<PyObject *>(python_type), no_thread.what());
    }
}

}  // namespace

NB_MODULE(_core, m) {
    // nanobind keeps what belongs to one interpreter.
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        throw nb::import_error("fastdata._core works in the main interpreter only");
    }
    // Daemon threads in the midst of a batch, and forked children, leave objects behind.
    nb::set_leak_warnings(false);
    pthread_atfork(nullptr, nullptr, [] { ending.returning = 0; });  // of threads a child lacks
    m.doc() = "Native core of fastdata; fastdata.probe.core() tells whether it is there.";

    // The module keeps the class alive for as long as the translator may need it.
    nb::module_ errors = nb::module_::import_("fastdata.errors");
    nb::object decode_error = errors.attr("DecodeError");
    nb::object thread_error = errors.attr("ThreadError");
    m.attr("DecodeError") = decode_error;
    m.attr("ThreadError") = thread_error;
    nb::register_exception_translator(translate_decode_error, decode_error.ptr());
    nb::register_exception_translator(translate_no_thread_error, thread_error.ptr());
    nb::register_exception_translator(translate_read_error, nullptr);

    m.def("hold_threads", &hold_threads,
          "Let no other thread return from the core any more; to be called when the interpreter ends.");
    m.def("libjpeg_turbo_version", &libjpeg_turbo_version,
          "Return the version of the linked libjpeg-turbo, for example '3.1.0'.");
    m.def("probe_jpeg", &probe_jpeg, "data"_a.noconvert(), "max_pixels"_a, "max_scans"_a,
          "max_segments"_a,
          nb::sig("def probe_jpeg(data: bytes | memoryview, max_pixels: int, max_scans: int, "
                  "max_segments: int) -> tuple[int, int, int, str, bool, bool, int, int]"),
          "Return the fields of fastdata.jpeg_header.JpegHeader, in its order; raise DecodeError.");
    m.def("transcode_jpeg", &transcode_jpeg, "data"_a.noconvert(), "run_pixels"_a, "max_pixels"_a,
          "max_scans"_a, "max_segments"_a, "damaged"_a = false,
          nb::sig("def transcode_jpeg(data: bytes | memoryview, run_pixels: int, max_pixels: int, "
                  "max_scans: int, max_segments: int, damaged: bool = False) "
                  "-> tuple[bytes | None, str, bool, bool]"),
          "Return the image coded in restart runs, or None and why it is kept as it is, whether "
          "libjpeg warns of it without harm, and whether bytes are left over in its coded data; with "
          "`damaged`, what libjpeg makes of damage. Raise DecodeError.");
    m.def("decode_crop", &decode_here, "data"_a.noconvert(), "region"_a, "scaled"_a, "cut"_a,
          "flip"_a, "out"_a.noconvert(), "max_pixels"_a, "max_scans"_a, "max_segments"_a,
          "Decode one crop of a JPEG into `out` in this thread; raise DecodeError.");
    m.def("resize_crop", &resize_here, "image"_a.noconvert(), "region"_a, "scaled"_a, "cut"_a,
          "flip"_a, "out"_a.noconvert(),
          "Resize one crop of a decoded image into `out` in this thread.");
    m.def("cut_jpeg", &cut_jpeg, "data"_a.noconvert(), "x0"_a, "y0"_a, "x1"_a, "y1"_a,
          "max_pixels"_a, "max_scans"_a, "max_segments"_a,
          nb::sig("def cut_jpeg(data: bytes | memoryview, x0: int, y0: int, x1: int, y1: int, "
                  "max_pixels: int, max_scans: int, max_segments: int) "
                  "-> tuple[bytes | None, int, int]"),
          "Return a JPEG of the restart runs that a region needs, and the place of its first pixel "
          "in the image; None where there are no runs to leave out. Raise DecodeError.");
    m.def("crc32c",
          [](const ByteView &data) {
              WithoutLock without_lock;
              return crc32c(data.data(), data.size());
          },
          "data"_a.noconvert(), nb::sig("def crc32c(data: bytes | memoryview) -> int"),
          "Return the CRC-32C of the bytes.");

    nb::class_<ByteSource>(m, "ByteSource", "Where the encoded bytes of a batch come from.");
    nb::class_<FileSet>(m, "FileSet", "The shards of a data set.")
        .def(nb::new_([](const Names &paths, size_t most_open) {
                 return std::make_shared<FileSet>(copy(paths), most_open);
             }),
             "paths"_a, "most_open"_a);
    nb::class_<FileRanges, ByteSource>(m, "FileRanges", "Ranges of shards.")
        .def(nb::new_([](std::shared_ptr<FileSet> files, const Column<uint32_t> &numbers,
                         const Column<uint64_t> &offsets, const Column<uint32_t> &sizes) {
                 require(numbers.size() == offsets.size() && numbers.size() == sizes.size(),
                         "numbers, offsets and sizes must have one length");
                 return std::make_shared<FileRanges>(std::move(files), copy(numbers),
                                                     copy(offsets), copy(sizes));
             }),
             "files"_a, "numbers"_a, "offsets"_a, "sizes"_a);
    nb::class_<LoadedSamples, ByteSource>(m, "LoadedSamples", "Samples in memory.");
    nb::class_<LmdbFile>(m, "LmdbFile", "An LMDB file that is read without mapping it.")
        .def(nb::new_([](const nb::bytes &path) {
                 return std::make_shared<LmdbFile>(std::string(path.c_str(), path.size()));
             }),
             "path"_a);
    nb::class_<LmdbValues, ByteSource>(m, "LmdbValues", "Parts of the values of an LMDB file.")
        .def(nb::new_([](std::shared_ptr<LmdbFile> file, const Column<uint64_t> &keys,
                         const Column<uint32_t> &offsets, const Column<uint32_t> &sizes) {
                 require(keys.size() == offsets.size() && keys.size() == sizes.size(),
                         "keys, offsets and sizes must have one length");
                 return std::make_shared<LmdbValues>(std::move(file), copy(keys), copy(offsets),
                                                     copy(sizes));
             }),
             "file"_a, "keys"_a, "offsets"_a, "sizes"_a);
    nb::class_<MixedRows, ByteSource>(m, "MixedRows", "Rows of several sources.")
        .def(nb::new_([](std::vector<std::shared_ptr<ByteSource>> parts,
                         const Column<uint32_t> &numbers, const Column<uint32_t> &rows) {
                 require(numbers.size() == rows.size(), "numbers and rows must have one length");
                 return std::make_shared<MixedRows>(std::move(parts), copy(numbers), copy(rows));
             }),
             "parts"_a, "numbers"_a, "rows"_a);
    nb::class_<WholeFiles, ByteSource>(m, "WholeFiles", "Files by their paths.")
        .def(nb::new_([](const Names &paths) { return std::make_shared<WholeFiles>(copy(paths)); }),
             "paths"_a);

    nb::class_<Handle>(m, "Job",
                       "A batch that is being worked on; its end waits until nothing touches it.")
        .def("cancel", &Handle::cancel, "Start no further row.")
        .def("wait", &Handle::wait, "seconds"_a, nb::call_guard<WithoutLock>(),
             "Wait until no thread touches the batch; False if that takes longer.")
        .def("failures", &failures,
             nb::sig("def failures(self) -> list[tuple[int, int, bytes]]"),
             "Row, kind and message of each failure by row; call it after wait(). There is more "
             "than the first one only where the job kept going.");
    nb::class_<LoadHandle, Handle>(m, "LoadJob", "Samples being read into memory and probed.")
        .def("samples", &LoadHandle::samples, "What was read, as a source for fill().")
        .def("sizes", &image_sizes, nb::sig("def sizes(self) -> list[tuple[int, int]]"),
             "Width and height of each JPEG; zeros for what is none.");
    nb::class_<Pool>(m, "WorkerPool",
                     "Threads that read and decode batches, of which images that need much memory "
                     "share `memory` bytes; with `libjpeg` by libjpeg-turbo alone, which "
                     "gives the same pixels, to compare with.")
        .def(nb::init<int, int64_t, int, int, size_t, bool>(), "threads"_a, "max_pixels"_a,
             "max_scans"_a, "max_segments"_a, "memory"_a, "libjpeg"_a = false)
        .def_prop_ro("threads", &Pool::threads,
                     "Threads that the system started, perhaps fewer than were asked for.")
        .def("fill", &fill, "source"_a, "crcs"_a, "places"_a, "sizes"_a, "regions"_a, "scaled"_a,
             "cut"_a, "flip"_a, "out"_a.noconvert(), "keep_going"_a,
             "Decode the crops at `places` of a batch into `out`, which the job keeps alive and the "
             "caller leaves alone until it is done; `sizes` are those of the whole images.")
        .def("load", &load, "source"_a, "keep_going"_a, "Read samples into memory and probe them.");
}
