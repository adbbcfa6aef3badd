#include "engine_core/kv_transfer/folder_worker.h"

#include <chrono>
#include <utility>

namespace tandem {

FolderWorker::FolderWorker(const PrefixFolder* folder)
    : folder_(folder),
      reader_("kv-read", [this](FolderJob job) { Run(std::move(job)); }),
      writer_("kv-store", [this](FolderJob job) { Run(std::move(job)); }) {}

FolderWorker::~FolderWorker() {
  reader_.Close();
  writer_.Close();
}

void FolderWorker::Push(FolderJob job) {
  ++num_pushed_;
  JobThread<FolderJob>& thread = job.kind == FolderJob::Kind::kStore ? writer_ : reader_;
  thread.Push(std::move(job));
}

std::vector<FolderJob>& FolderWorker::TakeDone() {
  done_.Drain(&taken_);
  num_pushed_ -= taken_.size();
  return taken_;
}

void FolderWorker::WaitBriefly() {
  if (is_busy()) (void)done_.WaitFor(std::chrono::milliseconds(1));
}

void FolderWorker::Run(FolderJob job) {
  Do(&job);
  done_.Push(std::move(job));
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
