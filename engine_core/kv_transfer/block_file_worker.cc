#include "engine_core/kv_transfer/block_file_worker.h"

#include <chrono>
#include <utility>

#include "common/clock.h"
#include "common/log.h"

namespace tandem {

BlockFileWorker::BlockFileWorker(const BlockFolder* folder, int num_readers) : folder_(folder) {
  for (int i = 0; i < num_readers; ++i) {
    Start("kv-file-read", readers_.emplace_back(std::make_unique<Lane>()).get());
  }
  Start("kv-file-write", &writer_);
  Push({.kind = BlockFileJob::Kind::kScan});
}

void BlockFileWorker::Start(const char* name, Lane* lane) {
  lane->thread = std::thread([this, name, lane] { Run(name, &lane->jobs); });
}

BlockFileWorker::~BlockFileWorker() {
  writer_.jobs.Close();
  for (const auto& lane : readers_) lane->jobs.Close();
  writer_.thread.join();
  for (const auto& lane : readers_) lane->thread.join();
}

void BlockFileWorker::Push(BlockFileJob job) {
  const bool is_read = job.kind == BlockFileJob::Kind::kRead;
  if (is_read && readers_.empty()) return;
  Lane& lane = is_read ? *readers_[next_reader_++ % readers_.size()] : writer_;
  lane.jobs.Push(std::move(job));
}

std::vector<BlockFileJob>& BlockFileWorker::TakeDone() {
  done_.Drain(&taken_);
  return taken_;
}

void BlockFileWorker::WaitBriefly() { (void)done_.WaitFor(std::chrono::milliseconds(1)); }

void BlockFileWorker::Run(const char* name, Mailbox<BlockFileJob>* jobs) {
  SetThreadName(name);
  std::vector<BlockFileJob> taken;
  while (!jobs->closed()) {
    jobs->Wait();
    jobs->Drain(&taken);
    for (BlockFileJob& job : taken) {
      if (jobs->closed()) return;
      const double begin = SystemClock().Monotonic();
      Do(&job);
      job.seconds = SystemClock().Monotonic() - begin;
      if (job.kind != BlockFileJob::Kind::kRemove) done_.Push(std::move(job));
    }
  }
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
