#include "engine_core/kv_transfer/block_file_worker.h"

#include <chrono>
#include <utility>

#include "common/clock.h"

namespace tandem {

BlockFileWorker::BlockFileWorker(const BlockFolder* folder, int num_readers)
    : folder_(folder), writer_("kv-file-write", [this](BlockFileJob job) { Run(std::move(job)); }) {
  for (int i = 0; i < num_readers; ++i) {
    readers_.push_back(std::make_unique<JobThread<BlockFileJob>>(
        "kv-file-read", [this](BlockFileJob job) { Run(std::move(job)); }));
  }
  Push({.kind = BlockFileJob::Kind::kScan});
}

BlockFileWorker::~BlockFileWorker() {
  writer_.Close();
  for (const auto& reader : readers_) reader->Close();
}

void BlockFileWorker::Push(BlockFileJob job) {
  const bool is_read = job.kind == BlockFileJob::Kind::kRead;
  if (is_read && readers_.empty()) return;
  auto& thread = is_read ? *readers_[next_reader_++ % readers_.size()] : writer_;
  thread.Push(std::move(job));
}

std::vector<BlockFileJob>& BlockFileWorker::TakeDone() {
  done_.Drain(&taken_);
  return taken_;
}

void BlockFileWorker::WaitBriefly() { (void)done_.WaitFor(std::chrono::milliseconds(1)); }

void BlockFileWorker::Run(BlockFileJob job) {
  const double begin = SystemClock().Monotonic();
  Do(&job);
  job.seconds = SystemClock().Monotonic() - begin;
  if (job.kind != BlockFileJob::Kind::kRemove) done_.Push(std::move(job));
}

void BlockFileWorker::Do(BlockFileJob* job) const {
  switch (job->kind) {
    case BlockFileJob::Kind::kScan:
      job->hashes = folder_->Scan();
      return;
    case BlockFileJob::Kind::kRead:
      job->status = folder_->Read(job->hash, job->bytes);
      return;
    case BlockFileJob::Kind::kWrite:
      job->status = folder_->Write(job->hash, job->bytes);
      return;
    case BlockFileJob::Kind::kRemove:
      for (const BlockHash& hash : job->hashes) folder_->Remove(hash);
      return;
  }
}

}  // namespace tandem
