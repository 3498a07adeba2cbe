"""Training of targets, drafts and selectors; every loop resumes after a crash."""
