// Package deployments runs the programs that people deploy sites with, several at once, against ftplockd and against
// vsftpd. With an automatic lock the site is then exactly one job's version; on vsftpd it is often a mixture.
//
// It contains tests only. Start reading at deployments_test.go for the scenarios, at programs_test.go for the programs.
package deployments
