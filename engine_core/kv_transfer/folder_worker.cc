#include "engine_core/kv_transfer/folder_worker.h"

#include <chrono>
#include <utility>

#include "common/log.h"

namespace tandem {

FolderWorker::FolderWorker(const PrefixFolder* folder)
    : folder_(folder),
      reader_([this] { Run("kv-read", &reads_); }),
      writer_([this] { Run("kv-store", &stores_); }) {}

FolderWorker::~FolderWorker() {
  reads_.Close();
  stores_.Close();
  reader_.join();
  writer_.join();
}

void FolderWorker::Push(FolderJob job) {
  ++num_pushed_;
  Mailbox<FolderJob>& jobs = job.kind == FolderJob::Kind::kStore ? stores_ : reads_;
  jobs.Push(std::move(job));
}

std::vector<FolderJob>& FolderWorker::TakeDone() {
  done_.Drain(&taken_);
  num_pushed_ -= taken_.size();
  return taken_;
}

void FolderWorker::WaitBriefly() {
  if (is_busy()) (void)done_.WaitFor(std::chrono::milliseconds(1));
}

void FolderWorker::Run(const char* name, Mailbox<FolderJob>* jobs) {
  SetThreadName(name);
  std::vector<FolderJob> taken;
  while (!jobs->closed()) {
    jobs->Wait();
    jobs->Drain(&taken);
    for (FolderJob& job : taken) {
      if (jobs->closed()) return;
      Do(&job);
      done_.Push(std::move(job));
    }
  }
}

void FolderWorker::Do(FolderJob* job) const {
  switch (job->kind) {
    case FolderJob::Kind::kLookUp:
      job->found = folder_->Has(job->key);
      return;
    case FolderJob::Kind::kLoad:
      job->status = folder_->Load(job->key, job->blocks, job->first_block);
      job->found = job->status.ok() || folder_->Has(job->key);
      return;
    case FolderJob::Kind::kStore:
      job->status = folder_->Store(job->key, job->blocks, job->replaces);
      return;
  }
}

}  // namespace tandem
