package job

// Remembered returns the number of jobs, visits and sites in memory, and of sessions that hold locks for jobs.
func (m *Manager) Remembered() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = len(m.jobs) + len(m.sites) + len(m.grants) + len(m.idle) + m.ended.Len()
	for _, j := range m.jobs {
		n += len(j.visits)
	}
	return n
}
